#pragma once

#define PROJECT_NAME "kit-client"
#define PROJECT_PACKAGE "kit_client"
#define PROJECT_NAMESPACE kit
#define PROJECT_SYMBOL(name) kit_##name
