import type { OpenApi } from './openapi.ts'
export const docsPage = (api: OpenApi): string => JSON.stringify(api)
