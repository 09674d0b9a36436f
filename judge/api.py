"""The judge as a function."""
