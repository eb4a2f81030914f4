// A library with the name of the driver's and nothing in it.
extern "C" int tlm_no_driver() { return 0; }
