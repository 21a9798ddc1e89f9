/** Clips for tests: drawn by ffmpeg once, or real ones where `SIGHTLINE_MEDIA_DIR` names a folder of them. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const FOLDER = join(tmpdir(), 'sightline-console-clips');

const scene = (name: string, seconds: number, filter = ''): string => `${name}=s=640x360:r=25:d=${seconds}${filter}`;
const RECIPES: Record<string, { from: string[]; args: string }> = {
  /** 12 s at 25 a second: four shots, so three hard cuts at 3, 6 and 9 s; noise from 7 to 8 s. */
  'cuts.mp4': {
    from: [scene('testsrc2', 3), scene('mandelbrot', 3, ',trim=duration=3').replace(':d=3', ''), scene('smptehdbars', 3), scene('testsrc', 3)],
    args: `[0:v]setsar=1[a];[1:v]setsar=1[b];[2:v]setsar=1,noise=alls=80:allf=t:enable='between(t,1,2)'[c];[3:v]setsar=1[d];[a][b][c][d]concat=n=4:v=1:a=0,format=yuv420p`,
  },
  /** 4 s at 10 a second, one shot. */
  'still.mp4': { from: ['smptebars=s=320x180:r=10:d=4'], args: '[0:v]format=yuv420p' },
};

/** Path of a clip of `RECIPES`, drawn where it is not there yet. */
export function clip(name: 'cuts.mp4' | 'still.mp4'): string {
  const path = join(FOLDER, name);
  if (existsSync(path)) return path;
  mkdirSync(FOLDER, { recursive: true });
  const { from, args } = RECIPES[name] ?? { from: [], args: '' };
  const drawn = join(FOLDER, `${process.pid}-${name}`);
  const inputs = from.flatMap((source) => ['-f', 'lavfi', '-i', source]);
  execFileSync('ffmpeg', ['-v', 'error', '-y', ...inputs, '-filter_complex', args, '-c:v', 'libx264', '-preset', 'ultrafast', '-g', '50', '-movflags', '+faststart', drawn]);
  renameSync(drawn, path);
  return path;
}

/** Path of a real clip, or `null` where there is no folder of them. */
export function realClip(name: string): string | null {
  const folder = process.env.SIGHTLINE_MEDIA_DIR;
  const path = folder ? join(folder, 'clips', name) : '';
  return path && existsSync(path) ? path : null;
}
