// A library that is no module.
extern "C" int tlm_mute() { return 0; }
