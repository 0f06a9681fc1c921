// SPDX-License-Identifier: Apache-2.0

// Package openapiv3 is empty: the API module imports it for annotations of its documentation.
package openapiv3
