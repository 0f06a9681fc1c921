// SPDX-License-Identifier: Apache-2.0

package status

import "fmt"

func Errorf(_ int, format string, args ...any) error {
	return fmt.Errorf(format, args...)
}
