// An empty library: it has the name of the driver's but no driver, and it is no module.
extern "C" int tlm_empty() { return 0; }
