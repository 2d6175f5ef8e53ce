"""An independent reference for compiled programs: the loop IR run slowly and obviously, in poisoned memory."""
