"""Consumer programs of several libraries, for groups whose coordinators fail: see `told`."""
