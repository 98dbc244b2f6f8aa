"""Search services elsewhere, asked over HTTP."""
