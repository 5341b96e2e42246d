"""Taking away what nobody needs any more."""
