// In place of torch's header of this name, which is for code that makes Python objects. Code that
// only binds functions finds what it needs here.
#pragma once

#include "extension.h"
