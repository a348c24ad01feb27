"""Operations: logs, metrics, traces, alerts for the operator, a watch over the event loop. Knows ports, and no adapter of another room."""
