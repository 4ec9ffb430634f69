import { defineConfig } from 'vitest/config'

/** Tests take milliseconds. The limits are for a busy machine. */
export default defineConfig({ test: { testTimeout: 30_000, hookTimeout: 30_000 } })
