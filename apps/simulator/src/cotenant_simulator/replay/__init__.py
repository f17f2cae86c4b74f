"""Public traces as scenarios: what ran on other people's machines, decided anew by the production services."""
