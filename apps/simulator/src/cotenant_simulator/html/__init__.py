"""One report of many runs that needs nothing but a browser: no scripts, nothing from the network."""
