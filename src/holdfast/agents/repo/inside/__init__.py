"""Programs that run inside sandboxes. They import nothing but the standard library."""
