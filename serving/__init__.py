"""What our HTTP servers have in common: who may use them, how much, how they fail, and which of several is asked;
and how these and the commands end."""
