"""Pages in a browser that belong to a run: a server in a thread, and the live page."""
