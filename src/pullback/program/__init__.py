"""Programs as data: functions are traced on symbols and staged as equations, which passes rewrite and `run` replays."""
