"""Markov chains over log-densities: HMC and NUTS as compiled loops, and what their chains tell."""
