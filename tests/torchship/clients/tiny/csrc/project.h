#pragma once

#define PROJECT_NAME "tiny-client"
#define PROJECT_PACKAGE "tiny_client"
#define PROJECT_NAMESPACE tiny
#define PROJECT_SYMBOL(name) tiny_##name
