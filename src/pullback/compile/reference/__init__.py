"""An independent reference for compiled programs: the loop language run slowly and obviously, in poisoned memory."""
