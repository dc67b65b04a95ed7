// EXPECT: conversion from
#include "base/units.h"

using namespace derate::literals;

#ifdef MISUSE
const derate::Joules energy = 300_W * 2.0;
#else
const derate::Joules energy = 300_W * derate::from_seconds(2.0);
#endif
