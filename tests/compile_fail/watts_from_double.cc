// EXPECT: conversion from 'double' to non-scalar type
#include "base/units.h"

#ifdef MISUSE
const derate::Watts limit = 300.0;
#else
const derate::Watts limit{300.0};
#endif
