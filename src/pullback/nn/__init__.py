"""The building blocks of networks: functions of arrays first, and a thin `Module` for those who want one."""
