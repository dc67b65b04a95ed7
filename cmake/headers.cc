// A target whose headers others share wants a file of its own.
