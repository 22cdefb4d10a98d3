#pragma once

#define PROJECT_NAME "bare-client"
#define PROJECT_PACKAGE "bare_client"
#define PROJECT_NAMESPACE bare
#define PROJECT_SYMBOL(name) bare_##name
