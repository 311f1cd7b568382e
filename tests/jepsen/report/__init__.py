"""A verdict as a page with drawings, and the command that judges a history file."""
