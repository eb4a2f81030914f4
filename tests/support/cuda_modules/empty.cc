// A library with nothing in it: no driver, though it has the name of the driver's, and no module.
extern "C" int tlm_empty() { return 0; }
