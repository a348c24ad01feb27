"""The console: pages for operators, and the same as JSON below `/v1/ops`. Both show what `hermes.console` reads."""
