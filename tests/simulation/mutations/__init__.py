"""Safety rules switched off one by one: each mutation must be noticed by a simulated world."""
