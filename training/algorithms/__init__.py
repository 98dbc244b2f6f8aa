"""Advantages, losses and sampling for agents, beside verl's own. `register.register_algorithms` enters them in verl."""
