"""What our HTTP servers have in common: who may use them, how much, and how they answer when something is wrong."""
