package bus

// CheckVersion is checkVersion, for there is only one version of the server to test with.
var CheckVersion = checkVersion

// IsConflict is isConflict.
var IsConflict = isConflict
