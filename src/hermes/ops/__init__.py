"""Operations: logs, metrics, alerts for the operator and the watch over the event loop. Knows ports, and no adapter of another room."""
