//! Scenarios, swarms and fuzz bodies run on the simulator.
