// EXPECT: conversion from
#include "base/units.h"

#ifdef MISUSE
const derate::Instant then = std::chrono::steady_clock::time_point();
#else
const derate::Instant then = derate::Instant();
#endif
