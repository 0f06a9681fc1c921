// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
)

// Who can be asked for a heap profile has it on.
func init() {
	if os.Getenv("STORM_PROFILE") != "" {
		runtime.MemProfile(nil, true)
	}
}
