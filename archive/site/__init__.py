"""The archive as a static web site."""
