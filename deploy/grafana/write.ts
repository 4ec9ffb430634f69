import { writeFileSync } from 'node:fs'
import { dashboard } from './dashboard.ts'

const file = new URL('dashboards/roomful.json', import.meta.url)
writeFileSync(file, `${JSON.stringify(dashboard(), null, 2)}\n`)
process.stdout.write('wrote deploy/grafana/dashboards/roomful.json\n')
