"""Changes of the archive's tables, one file a schema version; archive/schema.py runs them."""
