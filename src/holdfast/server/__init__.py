"""The HTTP API and the inspector's pages. `app.create_app` makes the application."""
