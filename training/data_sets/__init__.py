"""Public data sets in the layout that verl reads: one file for each, and what prepares any of them."""
