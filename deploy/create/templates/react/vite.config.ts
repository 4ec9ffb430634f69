import { defineConfig } from 'vite'

export default defineConfig({
  build: {
    rollupOptions: {
      // Packages for React mark their code with 'use client', which has no meaning here.
      onLog(level, log, handle) {
        if (log.code !== 'MODULE_LEVEL_DIRECTIVE') handle(level, log)
      },
    },
  },
})
