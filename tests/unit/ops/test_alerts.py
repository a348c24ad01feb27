"""An alert is a warning that is counted."""

from structlog.testing import capture_logs

from hermes.ops.metrics import LogAlerts, Metrics


def test_an_alert_is_a_warning_with_its_facts_and_is_counted_by_event() -> None:
    metrics = Metrics()
    alerts = LogAlerts(metrics)
    with capture_logs() as logs:
        alerts.alert("message_buried", turn_id="7e1d", attempt=6)
        alerts.alert("message_buried", turn_id="7e1e", attempt=6)
        alerts.alert("kill_switch_set")
    assert logs == [
        {"event": "message_buried", "log_level": "warning", "alert": True, "turn_id": "7e1d", "attempt": 6},
        {"event": "message_buried", "log_level": "warning", "alert": True, "turn_id": "7e1e", "attempt": 6},
        {"event": "kill_switch_set", "log_level": "warning", "alert": True},
    ]
    counts = [metrics.registry.get_sample_value("hermes_alerts_total", {"event": event}) for event in ("message_buried", "kill_switch_set")]
    assert counts == [2, 1]
