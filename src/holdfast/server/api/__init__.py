"""The JSON API, one noun a file. Each has a `router`."""
