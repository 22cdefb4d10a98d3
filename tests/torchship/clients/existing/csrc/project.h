#pragma once

#define PROJECT_NAME "existing-client"
#define PROJECT_PACKAGE "existing_client"
#define PROJECT_NAMESPACE existing
#define PROJECT_SYMBOL(name) existing_##name
